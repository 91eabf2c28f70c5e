// The report as people read it in a terminal.
#include <algorithm>
#include <string>
#include <vector>

#include "bench_report.h"
#include "text_table.h"

namespace spc::cli {
namespace {

constexpr size_t kTitle = 26, kWay = 16, kWidth = 8, kDepth = 6, kGroup = 10;  // characters of columns

// A row of the table of both modes: title, field of the report and part of the field ("round_seconds", "p50"), factor and format.
struct Row {
  const char *title, *name, *part;
  double factor;
  const char* form;
};
constexpr Row kRows[] = {
    {"tokens/s", "tokens_per_second", "", 1, "%.1f"},
    {"tokens/s without prefill", "decode_tokens_per_second", "", 1, "%.1f"},
    {"mean accepted", "mean_accepted", "", 1, "%.2f"},
    {"mean draft length", "mean_draft_length", "", 1, "%.2f"},
    {"new tokens", "new_tokens", "", 1, "%.0f"},
    {"rounds", "rounds", "", 1, "%.0f"},
    {"rounds with drafts", "drafting_rounds", "", 1, "%.0f"},
    {"first token ms", "first_token_seconds", "", 1e3, "%.2f"},
    {"inter-token ms, p50", "inter_token_seconds", "p50", 1e3, "%.2f"},
    {"inter-token ms, p90", "inter_token_seconds", "p90", 1e3, "%.2f"},
    {"inter-token ms, p99", "inter_token_seconds", "p99", 1e3, "%.2f"},
    {"round ms, p50", "round_seconds", "p50", 1e3, "%.2f"},
    {"round ms, p99", "round_seconds", "p99", 1e3, "%.2f"},
    {"prefill ms", "prefill_seconds", "", 1e3, "%.2f"},
    {"verify ms", "verify_seconds", "", 1e3, "%.2f"},
    {"draft ms", "draft_seconds", "", 1e3, "%.2f"},
    {"host ms", "host_seconds", "", 1e3, "%.2f"},
    {"host us a round", "host_microseconds_per_round", "", 1, "%.1f"},
};
constexpr const char* kWays[] = {"speculative", "autoregressive"};

// A number in this form, a dash where there is none.
std::string cell(const Json& value, const char* form, double factor = 1) {
  return value.is_null() ? "-" : number(form, value.number() * factor);
}

std::string percent(const Json& value) { return cell(value, "%.0f%%", 100); }

// Describe the choice of tokens, and the acceptance of drafts.
std::string choices(const Json& report) {
  std::string line = report["decoding"].text() + " decoding at temperature " + cell(report["temperature"], "%g");
  if (!report["seed"].is_null()) line += ", seed " + report["seed"].dump();
  for (const auto& [name, value] : report["limits"].object()) line += ", " + name + " " + cell(value, "%g");
  if (report["speculative"].is_null()) return line;
  line +=
      ", verified by " + report["method"].text() + (report["exact"].boolean() ? "" : ": APPROXIMATE, the output may change");
  return line + ", " + report["draft_length"].text() + " draft length";
}

// Describe the quality behind pictures.
std::string pictures(const Json& found) {
  std::string line = "behind synthetic pictures: the same best token as transformers for " + cell(found["same_argmax"], "%.2f", 100) + " % of " +
                     found["tokens"].dump() + " tokens, KL divergence " + cell(found["kl_divergence"], "%.6f") + " nats";
  const Json& encoder = found["encoder"];
  if (encoder.is_null()) return line;
  return line + "; by the encoder in " + encoder["precision"].text() + " alone " + cell(encoder["kl_divergence"], "%.6f") + " nats";
}

// Describe the run and the machine.
std::string head(const Json& report) {
  const auto told = [&](const char* name) {
    const Json& value = report[name];
    return value.is_null() ? "" : std::string(", ") + name + ": " + (value.is_text() ? value.text() : value.dump());
  };
  std::string text = report["bundle"].text() + " on " + report["engine"].text() + ", CPUs: " + report["cpus"].dump() +
                     told("threads") + told("kernels") + "\n";
  text += report["prompts"].dump() + " prompts, up to " + report["max_new_tokens"].dump() + " new tokens, " +
          report["repeats"].dump() + " repeats; medians over prompts and repeats, milliseconds per generation\n";
  text += choices(report) + "\n";
  if (report["conversation"].is_text()) {
    std::string form = report["conversation"].text();
    std::replace(form.begin(), form.end(), '_', ' ');
    text += "questions are written as " + form + "\n";
  }
  if (!report["pictures"].is_null()) text += pictures(report["pictures"]) + "\n";
  if (report["full_prompts"].integer())
    text += report["full_prompts"].dump() + " prompts ended where the bundle's buffers were full\n";
  text += "opened in " + cell(report["load_seconds"], "%.2f s");
  for (const auto& [name, size] : report["memory"].object()) text += ", " + name + " " + cell(size, "%.1f MB", 1e-6);
  std::string versions;
  for (const auto& [name, version] : report["versions"].object())
    versions += (versions.empty() ? "" : ", ") + name + " " + version.text();
  return text + "\n" + versions + "\n";
}

std::string ways(const Json& report) {
  std::string text = left("", kTitle);
  for (const char* way : kWays)
    if (!report[way].is_null()) text += right(way, kWay);
  for (const Row& row : kRows) {
    text += "\n" + left(row.title, kTitle);
    for (const char* way : kWays) {
      const Json& value = report[way][row.name];
      if (!report[way].is_null()) text += right(cell(*row.part ? value[row.part] : value, row.form, row.factor), kWay);
    }
  }
  return text + "\n";
}

std::string groups(const Json::List& all) {
  std::string text = "means over questions, prefill included\n" + left("", kTitle) + right("questions", kGroup) +
                     right("speculative", kWay) + right("autoregressive", kWay) + right("speedup", kGroup) +
                     right("accepted", kGroup) + "\n";
  for (const Json& each : all) {
    const Json& ours = each["speculative"];
    text += left(each["group"].text(), kTitle) + right(each["prompts"].dump(), kGroup) +
            right(cell(ours["tokens_per_second"], "%.1f"), kWay) +
            right(cell(each["autoregressive"]["tokens_per_second"], "%.1f"), kWay) +
            right(cell(each["speedup"], "%.2f"), kGroup) + right(cell(ours["mean_accepted"], "%.2f"), kGroup) + "\n";
  }
  return text;
}

// A title and a cell for each object of a list.
std::string line(const char* title, const Json& list, const char* name, const char* form, double factor, size_t width) {
  std::string text = left(title, kTitle);
  for (const Json& each : list.list()) text += right(cell(each[name], form, factor), width);
  return text + "\n";
}

std::string costs(const Json& found) {
  const Json &curve = found["verify"], &even = found["break_even"], &allowed = found["allowed_tokens_per_second"];
  std::string text = "costs over " + found["context"].dump() + " tokens of context\n";
  text += line("window width", curve, "width", "%.0f", 1, kWidth);
  text += line("verify ms", curve, "seconds", "%.2f", 1e3, kWidth);
  text += line("over a window of one", curve, "ratio", "%.2f", 1, kWidth);
  if (!found["draft_seconds"].is_null()) text += "draft " + cell(found["draft_seconds"], "%.2f ms, ", 1e3);
  text += "host " + cell(found["host_seconds"], "%.1f us a round\n", 1e6);
  if (!even.is_null()) {
    text += "speculation breaks even at a mean accepted of " + cell(even["mean_accepted"], "%.2f");
    if (!even["acceptance_rate"].is_null()) text += ", an acceptance rate of " + cell(even["acceptance_rate"], "%.2f");
    text += "\n";
  }
  if (!allowed.is_null())
    text += "mean accepted and these costs allow " + cell(allowed, "%.1f") + " tokens/s without prefill; " +
            percent(found["reached"]) + " of it was reached\n";
  return text;
}

std::string roofline(const Json& found) {
  const Json& memory = found["bandwidth"];
  std::string text = "memory: " + cell(memory["bytes_per_second"], "%.1f GB/s, ", 1e-9) + "reading " +
                     cell(memory["buffer_bytes"], "%.0f MB, ", 1e-6) + "threads: " + memory["threads"].dump() + "\n";
  for (const char* title : kWays) {
    const Json& way = found[title];
    if (way.is_null()) continue;
    text += left(title, kTitle) + cell(way["bytes_per_token"], "%.2f MB a token, ", 1e-6) + percent(way["share"]) +
            " of the bandwidth; a round: weights " + cell(way["weight_bytes"], "%.2f MB, ", 1e-6) + "caches " +
            cell(way["cache_bytes"], "%.2f MB\n", 1e-6);
  }
  return text;
}

// Say whether both modes gave the same tokens, and where they first differ.
std::string equality(const Json& report) {
  if (report["equal_prompts"].is_null())
    return "drafts are drawn: the two ways give other tokens, by the same probabilities";
  const auto token = [](const Json& value) { return value.is_null() ? std::string("None") : value.dump(); };
  std::string text = "same tokens on " + report["equal_prompts"].dump() + " of " + report["prompts"].dump() + " prompts";
  for (const Json& found : report["differences"].list()) {
    const std::string turn = report["conversation"].is_null() ? "" : ", turn " + found["turn"].dump();
    text += "\nprompt " + found["prompt"].dump() + turn + ": new token " + found["index"].dump() + " is " +
            token(found["speculative"]) + " speculatively and " + token(found["autoregressive"]) + " autoregressively";
  }
  return text;
}

std::string speculation(const Json& report) {
  if (report["speculative"].is_null()) return "the bundle has no drafter: autoregressive only";
  const Json& depths = report["acceptance_by_depth"];
  std::string text =
      "speedup " + cell(report["speedup"], "%.2f") + ", without prefill " + cell(report["decode_speedup"], "%.2f") + "\n\n";
  text += line("draft at depth", depths, "depth", "%.0f", 1, kDepth);
  text += line("rounds so deep", depths, "rounds", "%.0f", 1, kDepth);
  text += line("accepted", depths, "accepted", "%.2f", 1, kDepth);
  text += line("hit rate after previous", depths, "accepted_after_previous", "%.2f", 1, kDepth);
  return text + "\n" + equality(report);
}

}  // namespace

std::string write_table(const Json& report) {
  std::string text = head(report) + "\n" + ways(report) + "\n";
  if (!report["groups"].list().empty()) text += groups(report["groups"].list()) + "\n";
  text += costs(report["costs"]) + "\n";
  if (!report["roofline"].is_null()) text += roofline(report["roofline"]) + "\n";
  return text + speculation(report);
}

}  // namespace spc::cli
