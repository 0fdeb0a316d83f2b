#include "config.h"
#include "base/text.h"
#include "base/memory.h"
#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Edits between a and b: insert, delete, replace one character, or swap two neighbours
 * (optimal string alignment). */
static size_t edit_distance(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b), width = m + 1;
    size_t *rows = memory_alloc_array(3 * width, sizeof *rows);
    for (size_t j = 0; j <= m; j++) rows[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *row = rows + i % 3 * width, *up = rows + (i - 1) % 3 * width,
               *up2 = rows + (i + 1) % 3 * width;
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best =
                up[j - 1] + (tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]));
            if (up[j] + 1 < best) best = up[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                up2[j - 2] + 1 < best)
                best = up2[j - 2] + 1;
            row[j] = best;
        }
    }
    size_t distance = rows[n % 3 * width + m];
    memory_free(rows);
    return distance;
}

const char *text_nearest(const char *word, const char *const *words, size_t n) {
    size_t limit = strlen(word) / 3 + 1, best = limit + 1;
    const char *nearest = NULL;
    for (size_t i = 0; i < n; i++) {
        size_t d = edit_distance(word, words[i]);
        if (d < best) best = d, nearest = words[i];
    }
    return nearest;
}

int text_to_int(const char *s, int64_t *value) {
    char *end;
    if (!isdigit((unsigned char)s[s[0] == '-'])) return 0;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno || *end) return 0;
    *value = v;
    return 1;
}

int text_to_uint(const char *s, uint64_t *value) {
    char *end;
    if (!isdigit((unsigned char)s[0])) return 0;
    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    if (errno || *end) return 0;
    *value = v;
    return 1;
}

static locale_t c_locale(void) {
    static locale_t c;
    if (c == 0) c = newlocale(LC_ALL_MASK, "C", 0);
    return c;
}

int text_to_real(const char *s, double *value) {
    char *end;
    const char *first = s + (s[0] == '-');
    if (!isdigit((unsigned char)first[0]) && first[0] != '.') return 0;
    if (first[0] == '0' && (first[1] == 'x' || first[1] == 'X')) return 0;
    double v = strtod_l(s, &end, c_locale());
    if (*end || end == s || !isfinite(v)) return 0;
    *value = v;
    return 1;
}

char *text_real(char *buf, size_t size, double x) {
    locale_t before = uselocale(c_locale());
    double back = 0;
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(buf, size, "%.*g", digits, x);
        if (text_to_real(buf, &back) && back == x) break;
    }
    if (fabs(x) < 1e15 && x == floor(x)) snprintf(buf, size, "%.0f", x); /* not 1e+06 */
    uselocale(before);
    char *e = strchr(buf, 'e'); /* readers of YAML 1.1 take 1e-05 for a word */
    if (e && !strchr(buf, '.') && strlen(buf) + 3 <= size) {
        memmove(e + 2, e, strlen(e) + 1);
        memcpy(e, ".0", 2);
    }
    return buf;
}

int text_utf8(const char *s, uint32_t *code) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char c = (unsigned char)s[0];
    int n = c == 0 ? 0 : c < 0x80 ? 1 : c >> 5 == 6 ? 2 : c >> 4 == 14 ? 3 : c >> 3 == 30 ? 4 : 0;
    if (n == 0) return 0;
    uint32_t v = n == 1 ? c : c & (0x7fu >> n);
    for (int i = 1; i < n; i++) {
        if (((unsigned char)s[i] & 0xc0) != 0x80) return 0;
        v = v << 6 | ((unsigned char)s[i] & 0x3f);
    }
    if (v < least[n] || v > 0x10ffff || (v >= 0xd800 && v <= 0xdfff)) return 0;
    *code = v;
    return n;
}

static char *scaled(char *buf, size_t size, double x, const char *const *units, size_t n_units,
                    double base) {
    size_t u = 0;
    while (u + 1 < n_units && fabs(x) >= base * 0.9995) x /= base, u++;
    snprintf(buf, size,
             u == 0            ? "%.0f%s"
             : fabs(x) < 9.995 ? "%.2f%s"
             : fabs(x) < 99.95 ? "%.1f%s"
                               : "%.0f%s",
             x, units[u]);
    return buf;
}

char *text_bytes(char *buf, size_t size, double bytes) {
    static const char *const units[] = {" B", " kB", " MB", " GB", " TB", " PB"};
    return scaled(buf, size, bytes, units, 6, 1000);
}

char *text_count(char *buf, size_t size, double n) {
    static const char *const units[] = {"", " k", " M", " G", " T"};
    return scaled(buf, size, n, units, 5, 1000);
}

char *text_duration(char *buf, size_t size, double seconds) {
    if (seconds < 99.5)
        snprintf(buf, size, "%.0f s", seconds);
    else if (seconds < 3600)
        snprintf(buf, size, "%d min %02d s", (int)seconds / 60, (int)seconds % 60);
    else
        snprintf(buf, size, "%lld h %02d min", (long long)(seconds / 3600),
                 (int)((long long)seconds % 3600 / 60));
    return buf;
}
