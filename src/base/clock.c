/* The clocks, and instants as ISO 8601 texts. */
#define _GNU_SOURCE
#include "base/clock.h"

#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#ifdef BERTH_FAULTS
#include <fcntl.h>

/* Test build: the file named by BERTH_TEST_CLOCK_FILE holds seconds to add to the wall clock. */
static int64_t test_offset_us(void)
{
        const char *path = getenv("BERTH_TEST_CLOCK_FILE");
        char text[32] = { 0 };

        if (!path)
                return 0;
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return 0;
        if (read(fd, text, sizeof(text) - 1) < 0)
                text[0] = '\0';
        close(fd);
        return strtoll(text, NULL, 10) * US_PER_S;
}
#else
static int64_t test_offset_us(void)
{
        return 0;
}
#endif

static int64_t read_us(clockid_t id)
{
        struct timespec ts;

        clock_gettime(id, &ts);
        return (int64_t)ts.tv_sec * US_PER_S + ts.tv_nsec / 1000;
}

int64_t clock_wall_us(void)
{
        return read_us(CLOCK_REALTIME) + test_offset_us();
}

int64_t clock_now_us(void)
{
        static _Atomic int64_t last;
        int64_t seen = atomic_load(&last);
        int64_t now;

        do {
                now = clock_wall_us();
                if (now <= seen)
                        now = seen + 1;
        } while (!atomic_compare_exchange_weak(&last, &seen, now));
        return now;
}

int64_t clock_mono_us(void)
{
        return read_us(CLOCK_BOOTTIME);
}

/* Wall minus monotonic time; 0 before the first use, which no real offset is. */
static _Atomic int64_t steady_offset;

int64_t clock_steady_us(void)
{
        int64_t offset = atomic_load(&steady_offset);

        if (offset == 0) {
                int64_t now = clock_wall_us() - clock_mono_us();

                if (atomic_compare_exchange_strong(&steady_offset, &offset, now))
                        offset = now;
        }
        return clock_mono_us() + offset;
}

int64_t clock_steady_lag_us(void)
{
        return clock_wall_us() - clock_steady_us();
}

void clock_steady_add(int64_t us)
{
        (void)clock_steady_us();
        atomic_fetch_add(&steady_offset, us);
}

int64_t clock_mono_ms(void)
{
        return clock_mono_us() / 1000;
}

/* The years 0000 to 9999, the only ones that the text has room for. */
#define ISO_FIRST_US (INT64_C(-62167219200) * US_PER_S)
#define ISO_LAST_US  (INT64_C(253402300800) * US_PER_S - 1)

void clock_iso(int64_t us, char ret[ISO_TIME_LEN + 1])
{
        struct tm tm;
        char text[64];

        us = MIN(MAX(us, ISO_FIRST_US), ISO_LAST_US);
        int64_t s = us / US_PER_S, rest = us % US_PER_S;
        if (rest < 0) {
                rest += US_PER_S;
                s--;
        }
        time_t t = (time_t)s;
        gmtime_r(&t, &tm);
        snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year + 1900,
                 tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (int)(rest / 1000));
        memcpy(ret, text, ISO_TIME_LEN);
        ret[ISO_TIME_LEN] = '\0';
}

static bool two_digits(const char *s, int low, int high, int *ret)
{
        if (s[0] < '0' || s[0] > '9' || s[1] < '0' || s[1] > '9')
                return false;
        *ret = (s[0] - '0') * 10 + (s[1] - '0');
        return *ret >= low && *ret <= high;
}

/* timegm() would make 3 March of 31 February. */
static bool day_exists(int year, int month, int day)
{
        static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
        bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);

        return day <= days[month - 1] + (month == 2 && leap ? 1 : 0);
}

bool clock_parse_iso(const char *text, int64_t *ret_us)
{
        int century, year, month, day, hour, minute, second, oh, om;
        struct tm tm = { 0 };
        int64_t us, fraction = 0, scale = US_PER_S / 10, offset = 0;
        const char *p = text;

        if (strnlen(text, 20) < 20 || text[4] != '-' || text[7] != '-' || text[10] != 'T' ||
            text[13] != ':' || text[16] != ':')
                return false;
        if (!two_digits(p, 0, 99, &century) || !two_digits(p + 2, 0, 99, &year) ||
            !two_digits(p + 5, 1, 12, &month) || !two_digits(p + 8, 1, 31, &day) ||
            !two_digits(p + 11, 0, 23, &hour) || !two_digits(p + 14, 0, 59, &minute) ||
            !two_digits(p + 17, 0, 60, &second))
                return false;
        year += century * 100;
        if (!day_exists(year, month, day))
                return false;
        p += 19;
        if (*p == '.') {
                p++;
                if (*p < '0' || *p > '9')
                        return false;
                for (; *p >= '0' && *p <= '9'; p++) {
                        fraction += (*p - '0') * scale;
                        scale /= 10;
                }
        }
        if (*p == '+' || *p == '-') {
                if (strlen(p) != 6 || p[3] != ':' || !two_digits(p + 1, 0, 23, &oh) ||
                    !two_digits(p + 4, 0, 59, &om))
                        return false;
                offset = ((int64_t)oh * 3600 + om * 60) * (*p == '-' ? -1 : 1);
        } else if (p[0] != 'Z' || p[1] != '\0') {
                return false;
        }
        tm.tm_year = year - 1900;
        tm.tm_mon = month - 1;
        tm.tm_mday = day;
        tm.tm_hour = hour;
        tm.tm_min = minute;
        tm.tm_sec = second;
        us = ((int64_t)timegm(&tm) - offset) * US_PER_S + fraction;
        *ret_us = us;
        return true;
}
