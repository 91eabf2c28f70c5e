// The one place where exceptions become exit codes. Data goes to stdout, talk to stderr (speccompile/cli/exit_codes.py).
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "../files.h"
#include "../progress.h"

namespace spc::cli {

// Runs a command; whatever ends it, returns the exit code after telling why on stderr. A signal that ends it leaves at once.
int run(const std::function<void()>& command);
// Show messages of this level and above for the rest of this run; those of progress and above until then.
void show_from(Level level);

// At once, and as it is. A reader that has left ends the command without a word.
void write_stdout(std::string_view text);
void write_stderr(const std::string& line);
// Throws for a file of the user's that the system refuses.
[[noreturn]] void refuse_file(const std::string& path, const FileError& error);

}  // namespace spc::cli
