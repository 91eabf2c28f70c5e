// Files as pictures (runtime/images/decode.py): PPM and PGM always; PNG and JPEG where the runtime was compiled with the headers of
// libpng and libjpeg, and their libraries are there when it runs.
//
// The camera's orientation (EXIF, else XMP) is applied; transparent pixels are laid on white; palettes and grey become RGB; 16 bits a channel
// are cut to the upper 8; an animation is refused, as it is more than one picture.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "pixels.h"

namespace spc::images {

// Return a picture. where: its name in messages. Throws Error(kPrompt) for a file that cannot be read or decoded and for what is beyond
// the limits; Error(kEngine) for a format whose library is missing.
std::shared_ptr<const Pixels> read_picture(const std::string& path, const std::string& where);
// The same of the bytes of a file.
std::shared_ptr<const Pixels> decode(std::string_view data, const std::string& where);

// Throws Error(kPrompt): the picture cannot be decoded.
[[noreturn]] void refuse_damaged(const std::string& where, const std::string& problem);
// Formats, by their files. data: of a file that begins like one.
Pixels decode_pnm(std::string_view data, const std::string& where);
Pixels decode_png(std::string_view data, const std::string& where);
Pixels decode_jpeg(std::string_view data, const std::string& where);

// Return the orientation that EXIF data (a TIFF header and its first directory) names, 1 to 8 of a camera's; 0 without one.
int orientation_of(std::string_view exif);
// The same of a packet of XMP.
int xmp_orientation_of(std::string_view packet);
// Return the picture as its camera saw it. orientation: 0 or 1 for one that is as it should be.
Pixels turned(Pixels image, int orientation);

}  // namespace spc::images
