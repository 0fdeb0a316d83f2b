#include "config.h"
#include "base/stop.h"
#include <signal.h>
#include <string.h>

static volatile sig_atomic_t leave_flag, save_flag;

static void on_signal(int signal_number) {
    if (signal_number == SIGUSR2)
        save_flag = 1;
    else
        leave_flag = 1;
}

void stop_install(void) {
    static const int signals[] = {SIGTERM, SIGUSR1, SIGUSR2};
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    for (int i = 0; i < 3; i++) sigaction(signals[i], &action, NULL);
}

int stop_asked(void) {
    return leave_flag;
}

int stop_take_save(void) {
    int asked = save_flag;
    save_flag = 0;
    return asked;
}
