/* Raw mode of the terminal, and its restoring however the process ends. */
#define _GNU_SOURCE
#include "cli/terminal.h"

#include <errno.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>

static struct termios before;
static volatile sig_atomic_t is_raw;

void terminal_restore(void)
{
        if (!is_raw)
                return;
        is_raw = 0;
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
}

bool terminal_is_raw(void)
{
        return is_raw;
}

/* tcsetattr() may be called from handlers; the signal's own effect follows. */
static void restore_and_die(int number)
{
        if (is_raw)
                (void)tcsetattr(STDIN_FILENO, TCSANOW, &before);
        (void)raise(number); /* SA_RESETHAND has put the default back */
}

static void guard_terminal(void)
{
        static const int deadly[] = { SIGABRT, SIGALRM, SIGBUS,  SIGFPE,  SIGILL, SIGSEGV,
                                      SIGSYS,  SIGTRAP, SIGUSR1, SIGUSR2, SIGXCPU };
        struct sigaction action = { .sa_handler = restore_and_die,
                                    .sa_flags = (int)(SA_RESETHAND | SA_NODEFER) };

        sigemptyset(&action.sa_mask);
        for (size_t i = 0; i < ARRAY_LEN(deadly); i++)
                (void)sigaction(deadly[i], &action, NULL);
        (void)atexit(terminal_restore);
}

int terminal_raw(struct err *err)
{
        if (is_raw || !isatty(STDIN_FILENO))
                return 0;
        if (tcgetattr(STDIN_FILENO, &before) < 0)
                return err_sys(err, ERR_IO, errno, "read the terminal's settings");
        guard_terminal();
        struct termios raw = before;
        cfmakeraw(&raw);
        is_raw = 1; /* before the change: a signal in between restores what is there */
        if (tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) < 0) {
                is_raw = 0;
                return err_sys(err, ERR_IO, errno, "change the terminal's settings");
        }
        return 0;
}

void terminal_size(int *ret_columns, int *ret_rows)
{
        struct winsize size;

        *ret_columns = 80;
        *ret_rows = 24;
        for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
                if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
                        *ret_columns = MIN(size.ws_col, 9999);
                        *ret_rows = MIN(size.ws_row, 9999);
                        return;
                }
        }
}
