// From a line of PTX to the line of the source that it was made of, if the text has line information.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "../device/fault.hpp"

namespace msa_ops::emulator::ptx {

// What `.loc` says. With `inlined_at` that is the line within the function that was inlined.
//
// NVVM 23 and LLVM count the lines of inline assembly from that of its statement on, in a `.loc` before each of its
// instructions, as if the assembly stood in the source. They write `// begin inline asm` and `// end inline asm`
// around it, and no `.loc` after it for an instruction of the same statement: so what holds within the two lines, and
// behind them until the next one, is the `.loc` before them. In a text without such comments, as after something took
// them away, a block in braces stands for inline assembly unless it declares `.param`, as calls do; assembly without
// braces is not found then.
class SourceLines {
 public:
  // A text that can be parsed; it must outlive this.
  explicit SourceLines(std::string_view text);

  // Of what stands in this line of the text, counted from 1. `shown` has the file without folders, unless two files
  // have the same name then.
  SourcePlace of(int line) const;

 private:
  struct Mark {
    unsigned file;
    int line;
  };
  std::map<unsigned, std::string> files_;
  std::map<int, Mark> marks_;  // by lines of the text from which on they hold; line 0: nothing is said
};

}  // namespace msa_ops::emulator::ptx
