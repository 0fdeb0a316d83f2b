/* The verb `import`. */
#ifndef REGULON_IMPORT_H
#define REGULON_IMPORT_H
int import_main(int argc, char **argv); /* the words after the verb; returns the exit code */
#endif
