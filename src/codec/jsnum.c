/* Writes and reads numbers as JavaScript does. */
#include "codec/jsnum.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "base/utf8.h"

#define DIGITS_MAX 17

/* Add one to the last of n decimal digits. 999 becomes 100 with the exponent one higher. */
static void bump_digits(char *digits, int n, int *exponent)
{
        int i = n - 1;

        while (i >= 0 && digits[i] == '9')
                digits[i--] = '0';
        if (i >= 0) {
                digits[i]++;
                return;
        }
        digits[0] = '1';
        ++*exponent;
}

static bool reads_back(double v, const char *digits, int n, int exponent)
{
        char text[DIGITS_MAX + 16];

        snprintf(text, sizeof(text), "%.*se%d", n, digits, exponent - n + 1);
        return strtod(text, NULL) == v;
}

/* Normal numbers only: below them the neighbours are at the same distance. */
static bool is_power_of_two(double v)
{
        uint64_t bits;

        memcpy(&bits, &v, sizeof(bits));
        return v >= DBL_MIN && (bits << 12) == 0;
}

/* The fewest digits d1..dn with v = d1.d2..dn * 10^exponent, v positive and finite; returns n.
 *
 * Whatever has at most 15 digits survives the way through a double, so normal numbers start there
 * and lose their zeros afterwards; subnormal ones hold less. A power of two has a neighbour below
 * that is only half as far as the one above: there the nearest decimal may not read back while
 * the next larger one does. */
static int shortest_digits(double v, char digits[DIGITS_MAX + 1], int *ret_exponent)
{
        char text[DIGITS_MAX + 16];
        bool uneven = is_power_of_two(v);
        int n;

        for (n = v < DBL_MIN ? 1 : 15; n <= DIGITS_MAX; n++) {
                snprintf(text, sizeof(text), "%.*e", n - 1, v);
                *ret_exponent = atoi(strchr(text, 'e') + 1);
                digits[0] = text[0];
                memcpy(digits + 1, text + 2, (size_t)(n - 1));
                if (n == DIGITS_MAX || reads_back(v, digits, n, *ret_exponent))
                        break;
                if (!uneven)
                        continue;
                bump_digits(digits, n, ret_exponent);
                if (reads_back(v, digits, n, *ret_exponent))
                        break;
        }
        while (n > 1 && digits[n - 1] == '0')
                n--;
        digits[n] = '\0';
        return n;
}

bool jsnum_is_integer(double v)
{
        const double all_integral = (double)(INT64_C(1) << 53);

        if (v >= all_integral || v <= -all_integral)
                return isfinite(v);
        return !isnan(v) && (double)(int64_t)v == v;
}

size_t jsnum_format(double v, char ret[JSNUM_TEXT_MAX])
{
        char digits[DIGITS_MAX + 1];
        const char *sign = v < 0 ? "-" : "";
        int n, exponent, len;

        if (isnan(v) || isinf(v))
                return (size_t)snprintf(ret, JSNUM_TEXT_MAX, "%s",
                                        isnan(v) ? "NaN"
                                        : v < 0  ? "-Infinity"
                                                 : "Infinity");
        if (v == 0)
                return (size_t)snprintf(ret, JSNUM_TEXT_MAX, "0");
        n = shortest_digits(v < 0 ? -v : v, digits, &exponent);
        if (exponent >= 0 && exponent < 21 && n <= exponent + 1)
                len = snprintf(ret, JSNUM_TEXT_MAX, "%s%s%.*s", sign, digits, exponent + 1 - n,
                               "000000000000000000000");
        else if (exponent >= 0 && exponent + 1 < n)
                len = snprintf(ret, JSNUM_TEXT_MAX, "%s%.*s.%s", sign, exponent + 1, digits,
                               digits + exponent + 1);
        else if (exponent < 0 && exponent >= -6)
                len = snprintf(ret, JSNUM_TEXT_MAX, "%s0.%.*s%s", sign, -exponent - 1, "00000",
                               digits);
        else
                len = snprintf(ret, JSNUM_TEXT_MAX, "%s%c%s%se%+d", sign, digits[0],
                               n > 1 ? "." : "", digits + 1, exponent);
        return (size_t)len;
}

size_t jsnum_format_int(int64_t v, char ret[JSNUM_TEXT_MAX])
{
        char reversed[20];
        size_t n = 0, len = 0;
        uint64_t rest = v < 0 ? -(uint64_t)v : (uint64_t)v;

        do
                reversed[n++] = (char)('0' + rest % 10);
        while ((rest /= 10) > 0);
        if (v < 0)
                ret[len++] = '-';
        while (n > 0)
                ret[len++] = reversed[--n];
        ret[len] = '\0';
        return len;
}

static bool is_js_space(uint32_t c)
{
        return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0xa0 || c == 0x1680 ||
               (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
               c == 0x205f || c == 0x3000 || c == 0xfeff;
}

const char *js_trim(const char *text, size_t len, size_t *ret_len)
{
        size_t step, back;
        uint32_t point;

        while (len > 0 && utf8_next(text, len, &step, &point) && is_js_space(point)) {
                text += step;
                len -= step;
        }
        for (;;) {
                for (back = 1; back < 4 && back < len; back++)
                        if (((unsigned char)text[len - back] & 0xc0) != 0x80)
                                break;
                if (len == 0 || !utf8_next(text + len - back, back, &step, &point) ||
                    step != back || !is_js_space(point))
                        break;
                len -= back;
        }
        *ret_len = len;
        return text;
}

/* 0x1f, 0o17, 0b1; digits past 2^53 round as JavaScript's do only approximately, which makes no
 * difference for a port or a time-out. */
static double parse_radix(const char *s, size_t n, int radix)
{
        double v = 0;

        if (n == 0)
                return NAN;
        for (size_t i = 0; i < n; i++) {
                int c = (unsigned char)s[i], d = -1;

                if (c >= '0' && c <= '9')
                        d = c - '0';
                else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
                        d = (c | 0x20) - 'a' + 10;
                if (d < 0 || d >= radix)
                        return NAN;
                v = v * radix + d;
        }
        return v;
}

static size_t digits_at(const char *s, size_t n)
{
        size_t i = 0;

        while (i < n && s[i] >= '0' && s[i] <= '9')
                i++;
        return i;
}

/* Digits, optional fraction, optional exponent and nothing else: strtod() alone would take "inf",
 * "nan" and hexadecimal fractions too. */
static bool is_decimal(const char *s, size_t n)
{
        size_t whole = digits_at(s, n), i = whole, fraction = 0;

        if (i < n && s[i] == '.') {
                fraction = digits_at(s + i + 1, n - i - 1);
                i += 1 + fraction;
        }
        if (whole + fraction == 0)
                return false;
        if (i < n && (s[i] == 'e' || s[i] == 'E')) {
                size_t exponent;

                i++;
                if (i < n && (s[i] == '+' || s[i] == '-'))
                        i++;
                exponent = digits_at(s + i, n - i);
                if (exponent == 0)
                        return false;
                i += exponent;
        }
        return i == n;
}

double jsnum_parse(const char *text, size_t len)
{
        size_t n;
        const char *s = js_trim(text, len, &n);
        double sign = 1, v;

        if (n == 0)
                return 0;
        if (n >= 2 && s[0] == '0' && (s[1] | 0x20) == 'x')
                return parse_radix(s + 2, n - 2, 16);
        if (n >= 2 && s[0] == '0' && (s[1] | 0x20) == 'o')
                return parse_radix(s + 2, n - 2, 8);
        if (n >= 2 && s[0] == '0' && (s[1] | 0x20) == 'b')
                return parse_radix(s + 2, n - 2, 2);
        if (s[0] == '+' || s[0] == '-') {
                sign = s[0] == '-' ? -1 : 1;
                s++;
                n--;
        }
        if (n == 8 && memcmp(s, "Infinity", 8) == 0)
                return sign * INFINITY;
        if (!is_decimal(s, n))
                return NAN;
        char *copy = xstrndup(s, n);
        v = strtod(copy, NULL);
        free(copy);
        return sign * v;
}
