/* `regulon score`: what a trained model says of sequences and variants. */
#ifndef REGULON_SCORE_SCORE_H
#define REGULON_SCORE_SCORE_H

int score_main(int argc, char **argv); /* returns the exit code */
#endif
