// Header-only heaps composed from parts; see docs/tailored.md.
#pragma once

#include "allod/tailored/tailored.hpp"
