// Two saves, parameter by parameter, however each of them is cut into ranks.
#ifndef MILLPOND_PLUGIN_FILES_DIFFERENCE_H_
#define MILLPOND_PLUGIN_FILES_DIFFERENCE_H_

#include <string>

#include "checkpoint/file_system.h"
#include "plugin/files/work.h"

namespace millpond::plugin {

// Emits {a, b, equal, step_a, step_b, elements, differing: [{key, segment, first, a, b, max_abs,
// count}]}; `first` counts in the shard of the first save, `first`'s values are a and b. NaNs that
// are equal bit by bit are equal. Throws Error(E_MISSING, E_MISMATCH) where the second save has not
// all of the first one's elements.
void diff_saves(checkpoint::FileSystem& a, const std::string& save_id_a, checkpoint::FileSystem& b,
                const std::string& save_id_b, const FilesWork& work);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_FILES_DIFFERENCE_H_
