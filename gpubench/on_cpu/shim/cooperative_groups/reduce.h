// cooperative_groups.h has all definitions of this file.
#pragma once
#include "../cooperative_groups.h"
