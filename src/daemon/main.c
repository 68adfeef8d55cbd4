#include <stdio.h>

int main(void)
{
        puts("berth " BERTH_VERSION);
        return 0;
}
