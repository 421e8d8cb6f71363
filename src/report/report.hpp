#pragma once

#include "instance/process.hpp"
#include "text/text.hpp"

namespace allod {

// For check_failure_handler: reports a defect of Allod, and aborts.
void report_failed_check(const char* what) noexcept;

}  // namespace allod
