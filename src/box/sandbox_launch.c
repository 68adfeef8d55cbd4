#include "box/sandbox.h"
