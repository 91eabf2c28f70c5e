// Chat templates: what a template of Jinja writes with some variables.
#pragma once

#include <string>

#include "value.h"

namespace spc::jinja {

// source: UTF-8. Throws TemplateError, with the line of the template where that is known.
std::string render(const std::string& source, const Dict& variables);

}  // namespace spc::jinja
