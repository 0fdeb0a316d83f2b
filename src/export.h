/* The verb `export`. */
#ifndef REGULON_EXPORT_H
#define REGULON_EXPORT_H
int export_main(int argc, char **argv); /* the words after the verb; returns the exit code */
#endif
