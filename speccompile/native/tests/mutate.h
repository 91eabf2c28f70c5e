// Inputs that are almost right: bytes changed, and values of a JSON document changed, moved, repeated and nested.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "../json.h"
#include "check.h"

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  // Return the text of a document with some values changed; if it is no JSON, with bytes changed.
  std::string document(const std::string& text) {
    try {
      spc::Json document = spc::Json::parse(text);
      for (int64_t left = random_.integer(1, 3); left > 0; --left)
        if (!one_in(2) || !change_tensor(document)) change(document);
      return document.canonical();
    } catch (const spc::JsonError&) {
      return bytes(text);
    }
  }

  std::string bytes(std::string text) {
    for (int64_t left = random_.integer(1, 4); left > 0; --left) change(text);
    return text;
  }

  template <class T>
  T& one_of(std::vector<T>& items) {
    return items[index(items.size())];
  }
  bool one_in(int64_t count) { return random_.integer(1, count) == 1; }

 private:
  size_t index(size_t size) { return static_cast<size_t>(random_.integer(0, static_cast<int64_t>(size) - 1)); }

  void change(std::string& text) {
    static std::vector<std::string> parts = {"\"", "\\", "{", "}", "[", "]", ",", ":", "null", "1e999", "-",
                                             "\\ud800", "\xff", "\xed\xa0\x80", "\xf4\x90\x80\x80", "0", "NaN"};
    const size_t at = index(text.size() + 1), size = std::min(index(9), text.size() - at);
    switch (random_.integer(0, 6)) {
      case 0: text.insert(at, one_of(parts)); break;
      case 1: text.erase(at, size); break;
      case 2: text.insert(index(text.size() + 1), text.substr(at, size * 8)); break;
      case 3: text.insert(at, std::string(static_cast<size_t>(1) << random_.integer(0, 17), one_in(2) ? '[' : '{')); break;
      case 4: text.resize(at); break;
      case 5: text.insert(at, 1, static_cast<char>(random_.integer(0, 255))); break;
      default:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << random_.integer(0, 7)));
    }
  }

  static void collect(spc::Json& value, std::vector<spc::Json*>& found) {
    found.push_back(&value);
    for (spc::Json& each : value.list()) collect(each, found);
    for (auto& member : value.object()) collect(member.second, found);
  }

  void change(spc::Json& document) {
    std::vector<spc::Json*> values;
    collect(document, values);
    spc::Json &value = *one_of(values), other = *one_of(values);
    switch (random_.integer(0, 7)) {
      case 0: value = other; break;
      case 1: value = wrapped(other); break;
      case 2:
      case 3: value = similar(value, values); break;
      case 4: value = any(); break;
      default: change_members(value, other);
    }
  }

  // Replace a tensor's entry in a manifest by that of another one, or by anything. Returns whether the document has any.
  bool change_tensor(spc::Json& document) {
    std::vector<spc::Json*> values, tensors;
    collect(document, values);
    std::copy_if(values.begin(), values.end(), std::back_inserter(tensors),
                 [](const spc::Json* each) { return each->find("dtype") && each->find("buffer"); });
    if (tensors.empty()) return false;
    spc::Json &tensor = *one_of(tensors), &other = *one_of(tensors);
    const std::string name = one_of(tensor.object()).first;
    tensor.set(name, one_in(3) ? any() : other[name]);
    return true;
  }

  // Another one of its kind.
  spc::Json similar(const spc::Json& value, std::vector<spc::Json*>& values) {
    const spc::Json& other = *one_of(values);
    if (other.type() == value.type() && one_in(2)) return other;
    const uint64_t near = static_cast<uint64_t>(value.integer()) + random_.bits() % 5 - 2;
    if (value.is_integer() && one_in(2)) return static_cast<int64_t>(near);
    if (value.is_bool()) return !value.boolean();
    if (!value.is_text()) return any();
    std::string text = value.text();
    change(text);
    return spc::is_utf8(text) ? spc::Json(text) : spc::Json(value.text() + value.text());
  }

  spc::Json any() {
    static std::vector<spc::Json> values = {
        nullptr, true, 0, 1, -1, 2, 255, 65537, INT32_MAX, INT64_MAX, INT64_MIN, spc::Json::big("18446744073709551616"), 0.5,
        -0.0, 1e308, "", "window", "window+1", "window+999999999", "logit_rows", "catch_up", "history+7", "int32", "int64",
        "bool", "float16", "float32", "index", "state", "optional", "link", "path", "length", "../x", "a/b", ".", "chain",
        "dynamic", "sampling", "features", "pairs", "uniforms", "parents", "n_path", "(a+)+$", "(?<=a)b|\\p{L}+",
        "\\s+(?!\\S)", "[^\\r\\n]{0,999}", "Replace", "Sequence", "ByteLevel", "Metaspace", "Split", "<0x41>",
        "\xe2\x96\x81", "Isolated", "BPE", spc::Json::List{}, spc::Json::Object{}};
    return one_of(values);
  }

  static spc::Json wrapped(const spc::Json& value) {
    return spc::Json::List{spc::Json::Object{{"type", "Sequence"}, {"normalizers", spc::Json::List{value}}}, value};
  }

  void change_members(spc::Json& value, const spc::Json& other) {
    if (value.is_list() && !value.list().empty()) {
      spc::Json::List& items = value.list();
      const size_t at = index(items.size());
      if (one_in(3))
        items.erase(items.begin() + static_cast<std::ptrdiff_t>(at));
      else if (one_in(2))
        items.insert(items.begin() + static_cast<std::ptrdiff_t>(at), other);
      else
        std::swap(items[at], one_of(items));
    } else if (value.is_object() && !value.object().empty()) {
      spc::Json::Object& members = value.object();
      const size_t at = index(members.size());
      if (one_in(3))
        members.erase(members.begin() + static_cast<std::ptrdiff_t>(at));
      else if (one_in(2))
        std::swap(members[at].second, one_of(members).second);
      else
        value.set(members[at].first + (other.is_text() ? other.text() : "+"), other);
    }
  }

  speccompile::Random random_;
};
