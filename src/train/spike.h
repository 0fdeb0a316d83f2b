/* Losses that stand out from those before them. */
#ifndef REGULON_TRAIN_SPIKE_H
#define REGULON_TRAIN_SPIKE_H

enum { SPIKE_WINDOW = 64, SPIKE_LEAST = 16 /* losses before the first that can be one */ };

struct spike_window {
    double losses[SPIKE_WINDOW]; /* the last ones, a ring */
    int n;                       /* so far, spikes included */
};

/* What a loss was compared with. */
struct spike {
    int found;
    double median,
        mad; /* of the losses before it; MAD: median absolute deviation from the median */
};

/* Compares a loss with the window, found if it is above median + mads * MAD (a robust limit: Hampel
 * 1974; a MAD below 1e-4 of the median counts as that, so that equal losses are no measure), and
 * adds it if it is finite. mads 0: nothing is found. */
struct spike spike_note(struct spike_window *w, double loss, double mads);
#endif
