// SPDX-License-Identifier: Apache-2.0
#include <pawl/pawl.hpp>
#include "user.c"
