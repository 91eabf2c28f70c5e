#include "generation_output.h"

#include <cstdio>

namespace spc::cli {

std::string summary(const Json& result) {
  char accepted[48] = "", speed[48], faster[48] = "", encoded[48] = "";
  if (!result["mean_accepted"].is_null())
    std::snprintf(accepted, sizeof accepted, ", %.2f tokens each", result["mean_accepted"].number());
  std::snprintf(speed, sizeof speed, ", %.1f tokens/s", result["tokens_per_second"].number());
  if (!result["estimated_speedup"].is_null())
    std::snprintf(faster, sizeof faster, ", %.2fx autoregressive (estimated)", result["estimated_speedup"].number());
  if (!result["encode_seconds"].is_null()) std::snprintf(encoded, sizeof encoded, ", pictures encoded in %.2f s", result["encode_seconds"].number());
  const size_t count = result["token_ids"].list().size();
  return std::to_string(count) + (count == 1 ? " new token in " : " new tokens in ") + result["rounds"].dump() + " " +
         result["mode"].text() + (result["rounds"].number() == 1 ? " round" : " rounds") + accepted + speed + faster + encoded + ", finish reason " + result["finish_reason"].text() +
         (result["seed"].is_null() ? "" : ", seed " + result["seed"].dump());
}

}  // namespace spc::cli
