// One function per reader, each in the file of its name or of its family.
#pragma once

#include "target.h"

namespace drivetrain::fuzz {

Target json_target();  // json.cpp
Target json_line_target();
Target elf_target();            // manifest.cpp
Target manifest_target();       //
Target safetensors_target();    // safetensors.cpp
Target pickle_target();         // torch_file.cpp
Target torch_file_target();     //
Target checkpoints_target();    // checkpoints.cpp
Target sharded_target();        // sharded.cpp
Target token_index_target();    // token_index.cpp
Target npy_target();            //
Target tokenizer_target();      // tokenizer.cpp
Target token_pattern_target();  //
Target sentencepiece_target();  //

}  // namespace drivetrain::fuzz
