#ifndef REGULON_INFO_H
#define REGULON_INFO_H
/* `regulon info FILE...`: says what a deck, corpus or metrics file holds. On rank 0. Returns the
 * exit code. */
int info_main(int argc, char **argv);
#endif
