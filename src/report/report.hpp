// What the user is told when something is wrong.
#pragma once

#include "instance/process.hpp"
#include "text/text.hpp"

namespace allod {

// For check_failure_handler: a defect of Allod itself.
void report_failed_check(const char* what) noexcept;

}  // namespace allod
