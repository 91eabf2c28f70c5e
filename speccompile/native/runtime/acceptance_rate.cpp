#include "acceptance_rate.h"

#include <algorithm>

#include "../contract_table.h"

namespace spc {

AcceptanceCounts::AcceptanceCounts(int size, double memory, bool is_tree)
    : tried(static_cast<size_t>(size)), accepted(static_cast<size_t>(size)), growth_(1 / (1 - 1 / memory)), is_tree_(is_tree) {}

void AcceptanceCounts::add(const std::vector<int>& drafts, int limit, int without) {
  unit *= growth_;
  const double with = static_cast<double>(is_tree_ ? drafts.size() / static_cast<size_t>(std::max(1, limit)) : drafts.size());
  rows += (with + without) * unit;
  rounds += unit;
  if (with > 0) {
    rows_with += with * unit;
    rounds_with += unit;
  }
  is_tree_ ? add_trees(drafts, limit) : add_chains(drafts, limit);
  if (unit > kLargestUnit) {
    scale(1 / unit);
    unit = 1;
  }
}

void AcceptanceCounts::add_chains(const std::vector<int>& drafts, int limit) {
  for (const int count : drafts) {
    for (size_t depth = 0; depth < static_cast<size_t>(count); ++depth) {
      tried[depth] += unit;
      accepted[depth] += unit;
    }
    if (count < limit) tried[static_cast<size_t>(count)] += unit;
  }
}

void AcceptanceCounts::add_trees(const std::vector<int>& drafts, int limit) {
  int before = 1;
  for (size_t i = 0; i < drafts.size(); ++i) {
    const size_t place = i % static_cast<size_t>(limit);
    if (!place) before = 1;
    tried[place] += before * unit;
    accepted[place] += drafts[i] * unit;
    before = drafts[i];
  }
}

void AcceptanceCounts::scale(double factor) {
  for (double& count : tried) count *= factor;
  for (double& count : accepted) count *= factor;
  rows *= factor;
  rows_with *= factor;
  rounds *= factor;
  rounds_with *= factor;
}

Acceptance::Acceptance(int depth) : here_(depth, kMemory, false), everywhere_(depth, kLongMemory, false) {}

Acceptance::Acceptance(int widths, int nodes, int depth)
    : prior_(static_cast<size_t>(widths), kNodesGain), here_(widths, kMemory, true), everywhere_(widths, kLongMemory, true) {
  double reached = 1;
  prior_[0] = 0;
  for (int deep = 0; deep < std::min(nodes, depth); ++deep) {
    reached *= kPriorAcceptance;
    prior_[0] += reached;
  }
}

void Acceptance::add(const std::vector<int>& accepted, int limit, int without) {
  here_.add(accepted, limit, without);
  everywhere_.add(accepted, limit, without);
}

void Acceptance::expect(const MeasuredAcceptance& measured) {
  const double factor = std::min(1.0, static_cast<double>(kLongMemory) / static_cast<double>(measured.rounds));
  everywhere_.rows = everywhere_.rounds = factor * static_cast<double>(measured.rounds);
  everywhere_.rows_with = everywhere_.rounds_with = factor * static_cast<double>(measured.drafted);
  everywhere_.unit = 1;
  if (prior_.empty()) {
    for (size_t depth = 0; depth < measured.tried.size(); ++depth) {
      everywhere_.tried[depth] = factor * static_cast<double>(measured.tried[depth]);
      everywhere_.accepted[depth] = factor * static_cast<double>(measured.accepted[depth]);
    }
    return;
  }
  int64_t accepted = 0;
  for (const int64_t count : measured.accepted) accepted += count;
  double narrowest = static_cast<double>(accepted) / static_cast<double>(std::max<int64_t>(1, measured.drafted));
  for (size_t place = 1; place < prior_.size(); ++place) narrowest /= prior_[place];
  std::fill(everywhere_.tried.begin(), everywhere_.tried.end(), 0.0);
  std::fill(everywhere_.accepted.begin(), everywhere_.accepted.end(), 0.0);
  everywhere_.tried[0] = everywhere_.rows_with;
  everywhere_.accepted[0] = everywhere_.rows_with * narrowest;
}

std::vector<double> Acceptance::expected(double unit, const std::vector<double>& accepted, const std::vector<double>& tried) const {
  double chance = kPriorAcceptance, reached = 1;
  std::vector<double> found{1.0};
  for (size_t place = 0; place < tried.size(); ++place) {
    if (prior_.empty()) {
      chance = (accepted[place] + chance * unit) / (tried[place] + unit);
      reached *= chance;
      found.push_back(found.back() + reached);
    } else {
      reached *= (accepted[place] + prior_[place] * unit) / (tried[place] + unit);
      found.push_back(1 + reached);
    }
  }
  return found;
}

void Acceptance::limit_weight(double rounds) {
  if (here_.rounds > rounds * here_.unit) here_.scale(rounds * here_.unit / here_.rounds);
}

double Acceptance::weight() const {
  if (everywhere_.rounds == 0) return 0;
  const double weight =
      kPriorWeight / (1 + here_.rounds / here_.unit / kPriorWeight) / (everywhere_.rounds / everywhere_.unit);
  return std::min(1.0, weight) * here_.unit / everywhere_.unit;
}

void Acceptance::halve() { here_.scale(0.5); }

std::vector<double> Acceptance::tokens() const {
  const double weight = this->weight();
  std::vector<double> accepted = here_.accepted, tried = here_.tried;
  for (size_t depth = 0; depth < tried.size(); ++depth) {
    accepted[depth] += weight * everywhere_.accepted[depth];
    tried[depth] += weight * everywhere_.tried[depth];
  }
  return expected(here_.unit, accepted, tried);
}

std::vector<double> Acceptance::usual_tokens() const {
  return expected(everywhere_.unit, everywhere_.accepted, everywhere_.tried);
}

double Acceptance::rows() const {
  const double weight = this->weight();
  return (here_.rows_with + weight * everywhere_.rows_with + here_.unit) /
         (here_.rows + weight * everywhere_.rows + here_.unit);
}

double Acceptance::rounds() const {
  const double weight = this->weight();
  return (here_.rounds_with + weight * everywhere_.rounds_with + here_.unit) /
         (here_.rounds + weight * everywhere_.rounds + here_.unit);
}

}  // namespace spc
