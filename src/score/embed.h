/* `regulon embed`: hidden states of a trained model for the bases of sequences. */
#ifndef REGULON_SCORE_EMBED_H
#define REGULON_SCORE_EMBED_H

int embed_main(int argc, char **argv); /* returns the exit code */
#endif
