// Commands of tests for native/images: one JSON object a line, and an answer for each. Arrays go through files.
//
//   {"resize": [height, width, resample, like torch], "image": [file, height, width], "out": file}
//   {"runs": plan.images, "low": false, "image": .., "out": file}      grid, rows, text and the inputs of the encoder
//   {"joined": plan.images, "image": .., "rows": file, "counts": [..], "width": 4, "out": file}
//   {"media": plan.images, "images": [image, ..], "ids": [..]}         identity, blocks, offsets and ends of chunks
//   {"prepared": plan.images, "images": .., "ids": .., "start": place} of tiles: first number of the row of each place from `start` on,
//     after looks at the whole prompt and at what begins there; that of a run is its first pixel
//   {"prompt": [text, token, texts, alone]}   {"marked": [text, tokens]}   {"decode": file, "out": file}
//
// The answer is {"answer": .., "told": []} or {"error": {"kind": .., "message": .., "hint": ..}, "told": []}.
#include <cstring>
#include <iostream>

#include "../errors.h"
#include "../files.h"
#include "../images/decode.h"
#include "../images/media.h"
#include "../images/prompts.h"

namespace spc::images {
namespace {

std::shared_ptr<const Pixels> image_of(const Json& asked) {
  const Json::List& of = asked.list();
  const std::string bytes = read_file(of.at(0).text());
  return std::make_shared<const Pixels>(Pixels{of.at(1).integer(), of.at(2).integer(), {bytes.begin(), bytes.end()}});
}

ImageSettings settings_of(const Json& images) {
  Manifest manifest;
  manifest.json = Json::Object{{"plan", Json::Object{{"images", images}}}};
  Tensor media;
  media.name = names::kMedia;
  media.shape = {{0, "media"}, {images["width"].integer(), ""}};
  Graph graph;
  graph.inputs = {media};
  manifest.graphs = {graph};
  return *ImageSettings::of(manifest);
}

std::shared_ptr<Encoder> encoder_of(const Json& images) {
  return std::make_shared<Encoder>(settings_of(images), []() -> RunEncoder { throw Error(Kind::kDefect, "nothing is encoded here"); }, 0);
}

void write_pixels(const Json& asked, const Pixels& image) { write_file(asked["out"].text(), {reinterpret_cast<const char*>(image.data.data()), image.data.size()}); }

Json resized(const Json& asked) {
  const Json::List& to = asked["resize"].list();
  write_pixels(asked, resize(*image_of(asked["image"]), to.at(0).integer(), to.at(1).integer(), to.at(2).text(), to.at(3).boolean()));
  return {};
}

Json runs(const Json& asked) {
  const auto family = make_family(settings_of(asked["runs"]), asked["low"].boolean());
  const auto image = image_of(asked["image"]);
  const Grid grid = family->grid(image->height, image->width);
  Json::List found;
  std::string bytes;
  for (const EncoderRun& run : family->runs(*image)) {
    Json inputs{Json::List{}};
    for (const EncoderInput& input : run) {
      inputs.list().push_back(Json::List{input.name, input.ints.empty() ? "float32" : "int64", list_of(input.shape)});
      bytes.append(reinterpret_cast<const char*>(input.floats.data()), input.floats.size() * sizeof(float));
      bytes.append(reinterpret_cast<const char*>(input.ints.data()), input.ints.size() * sizeof(int64_t));
    }
    found.push_back(inputs);
  }
  write_file(asked["out"].text(), bytes);
  return Json::Object{{"grid", Json::List{grid.rows, grid.columns, grid.whole}}, {"rows", family->n_rows(grid)}, {"text", family->text(grid)},
                      {"alone", family->alone()}, {"runs", found}};
}

Json joined_rows(const Json& asked) {
  const auto family = make_family(settings_of(asked["joined"]), false);
  const int64_t width = asked["width"].integer();
  const std::string bytes = read_file(asked["rows"].text());
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  std::vector<Rows> found;
  auto at = values.begin();
  for (const Json& count : asked["counts"].list()) {
    found.push_back({count.integer(), width, {at, at + count.integer() * width}});
    at += count.integer() * width;
  }
  const auto image = image_of(asked["image"]);
  const Rows all = family->joined(found, family->grid(image->height, image->width));
  write_file(asked["out"].text(), {reinterpret_cast<const char*>(all.values.data()), all.values.size() * sizeof(float)});
  return all.count;
}

std::pair<std::vector<PicturePtr>, TokenIds> prompt_of(const Json& asked, const Encoder& encoder) {
  std::pair<std::vector<PicturePtr>, TokenIds> found;
  for (const Json& each : asked["images"].list()) found.first.push_back(encoder.picture(image_of(each), false));
  for (const Json& id : asked["ids"].list()) found.second.push_back(id.integer());
  return found;
}

Json media(const Json& asked) {
  const std::shared_ptr<Encoder> encoder = encoder_of(asked["media"]);
  const auto [pictures, ids] = prompt_of(asked, *encoder);
  const SequenceMedia media(pictures, ids, encoder);
  const auto size = static_cast<int64_t>(ids.size());
  Json::List blocks, stops, reusable, offsets(3, Json(Json::List{}));
  for (int64_t place = 0; place < size; ++place) blocks.push_back(media.block(place));
  for (int64_t place = 0; place <= size + 1; ++place)
    for (size_t axis = 0; axis < 3; ++axis) offsets[axis].list().push_back(media.offset(axis, place));
  for (int64_t stop = 1; stop <= size; ++stop) {
    stops.push_back(Json::List{media.chunk_stop(0, stop), media.chunk_stop(std::max<int64_t>(0, stop - 3), stop)});
    reusable.push_back(media.reusable(stop));
  }
  return Json::Object{{"identity", list_of(media.identity())}, {"blocks", blocks}, {"offsets", offsets}, {"stops", stops}, {"reusable", reusable}};
}

Json prepared(const Json& asked) {
  const ImageSettings settings = settings_of(asked["prepared"]);
  const auto run = [settings](const EncoderRun& given) {
    return Rows{settings.tile_rows, settings.width, std::vector<float>(static_cast<size_t>(settings.tile_rows * settings.width), given.front().floats.front())};
  };
  const auto encoder = std::make_shared<Encoder>(settings, [run]() -> RunEncoder { return run; }, 0);
  const auto [pictures, ids] = prompt_of(asked, *encoder);
  SequenceMedia media(pictures, ids, encoder);
  media.prepare(0, false);
  const int64_t start = asked["start"].integer();
  while (!media.prepare(start, true)) continue;
  Json::List found;
  for (auto place = start; place < static_cast<int64_t>(ids.size()); ++place) {
    const float* const row = media.row(place);
    found.push_back(row ? Json(static_cast<double>(*row)) : Json());
  }
  return found;
}

std::vector<std::string> texts(const Json& list) {
  std::vector<std::string> found;
  for (const Json& each : list.list()) found.push_back(each.text());
  return found;
}

Json answer(const Json& asked) {
  if (asked.find("resize")) return resized(asked);
  if (asked.find("runs")) return runs(asked);
  if (asked.find("joined")) return joined_rows(asked);
  if (asked.find("media")) return media(asked);
  if (asked.find("prepared")) return prepared(asked);
  if (const Json* const prompt = asked.find("prompt"))
    return with_pictures(prompt->list().at(0).text(), prompt->list().at(1).text(), texts(prompt->list().at(2)), prompt->list().at(3).text());
  if (const Json* const given = asked.find("marked")) {
    const std::string text = given->list().at(0).text();
    return marked(text, texts(given->list().at(1)), unused_mark({text}));
  }
  const auto image = read_picture(asked["decode"].text(), "image");
  write_pixels(asked, *image);
  return Json::List{image->height, image->width};
}

}  // namespace
}  // namespace spc::images

int main() {
  using spc::Json;
  for (std::string line; std::getline(std::cin, line);) {
    Json told{Json::Object{}};
    try {
      told.set("answer", spc::images::answer(Json::parse(line)));
    } catch (const spc::Error& error) {
      const char* const kind = error.kind == spc::Kind::kPrompt ? "PromptError" : error.kind == spc::Kind::kBundle ? "BundleError" : "EngineError";
      told.set("error", Json::Object{{"kind", kind}, {"message", error.message}, {"hint", error.hint}});
    }
    told.set("told", Json::List{});
    std::cout << told.dump() << std::endl;
  }
}
