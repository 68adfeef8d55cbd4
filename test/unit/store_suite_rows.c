#include "store_suite.h"
int store_suite_run_rows(void)
{
        return 0;
}
