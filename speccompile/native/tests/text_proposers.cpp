// Drafts over texts: prints a result as JSON for each prompt, one a line.
//   test_text_proposers TARGET DRAFTER ONNXRUNTIME NEW_TOKENS PROMPT..
#include <cstdlib>
#include <iostream>

#include "speccompile.hpp"

int main(int argc, char **argv) {
  if (argc < 6) return 2;
  const std::vector<std::pair<std::string, std::string>> options = {{"onnxruntime", argv[3]}, {"threads", "1"}};
  try {
    const speccompile::Bundle target(argv[1], options), drafter(argv[2], options);
    speccompile::Session session(target);
    session.propose_with(speccompile::TextProposer(drafter, target));
    for (int prompt = 5; prompt < argc; ++prompt) {
      auto request = speccompile::Request().prompt(std::string_view(argv[prompt]));
      request.set("max_new_tokens", std::atoi(argv[4])).set("adaptive", 0);
      std::cout << session.run(request).json() << "\n";
    }
  } catch (const speccompile::Error &error) {
    std::cerr << error.what() << "\n" << error.hint << "\n";
    return error.exit_code;
  }
  return 0;
}
