#include "config.h"
#include "info.h"
#include "base/die.h"
#include "base/file.h"
#include "base/h5.h"
#include "base/log.h"
#include "base/memory.h"
#include "config/config.h"
#include "data/corpus.h"
#include "metrics/metrics.h"
#include <stdio.h>
#include <string.h>

static void info_one(const char *name) {
    char *inside = file_join(name, "metrics.h5"); /* a run folder */
    const char *path = file_exists(inside) ? inside : name;
    char *format = file_exists(path) ? h5_read_format(path) : NULL;
    if (!format)
        config_info(name, stdout);
    else if (strcmp(format, "regulon metrics") == 0)
        metrics_info(path, stdout);
    else if (strcmp(format, "regulon corpus") == 0)
        corpus_info(path, stdout);
    else
        die_user(EXIT_DATA, "%s: a file of format '%s', which this version does not know", path,
                 format);
    memory_free(format);
    memory_free(inside);
}

int info_main(int argc, char **argv) {
    if (log_rank() == 0) {
        if (argc == 0)
            die_user(EXIT_USAGE, "info: which file? regulon info DECK|CORPUS|METRICS|RUN ...");
        if (strcmp(argv[0], "--help") == 0)
            printf("regulon info FILE...\nSays what a deck, a packed corpus, a metrics file or a "
                   "run folder holds.\n");
        else
            for (int i = 0; i < argc; i++) info_one(argv[i]);
    }
    user_agree();
    return EXIT_FINISHED;
}
