// Arithmetic of the operators whose time it decides.
#pragma once
#include <string>

#include "sim/op_info.h"

namespace sim {

FlopFormula flop_formula(const std::string& name);

}  // namespace sim
