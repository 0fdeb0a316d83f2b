/* Where the files of the program lie. */
#ifndef REGULON_BASE_PLACE_H
#define REGULON_BASE_PLACE_H

/* A folder of files that come with the program: `in_source` when it runs in its build folder, else
 * `installed`, as configure knew it; where the installation was moved as a whole, its new place.
 * The caller frees it. */
char *place_folder(const char *in_source, const char *installed);
#endif
