// Layer 0: compiler, processor, units, checks, lists, locks.
#pragma once

#include "allod/base/announce.hpp"
#include "allod/base/bits.hpp"
#include "allod/base/bytes.hpp"
#include "allod/base/check.hpp"
#include "allod/base/cpu.hpp"
#include "allod/base/divider.hpp"
#include "allod/base/list.hpp"
#include "allod/base/lock.hpp"
#include "allod/base/units.hpp"
