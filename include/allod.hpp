// Heaps that a program composes from parts, header-only: see docs/tailored.md.
#pragma once

#include "allod/tailored/tailored.hpp"
