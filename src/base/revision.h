/* The source's git revision, as built. */
#ifndef REGULON_BASE_REVISION_H
#define REGULON_BASE_REVISION_H
const char *revision_name(void);
const char *revision_configure_line(void); /* the arguments ./configure was given */
#endif
