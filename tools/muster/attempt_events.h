// The events that every attempt to train has, of one worker or of several: where it began, on what
// machine and with which program, and how it ended (track/run_events.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include <nlohmann/json.hpp>

#include "muster/track/run_directory.h"
#include "muster/track/run_events.h"

#include "tools/muster/commands.h"

namespace muster::cli {

// If the file cannot be written, says so, and gives one that writes nothing: the run trains all the
// same.
std::unique_ptr<track::RunEventLog> open_events(const track::RunDirectory& run, Context& context);

// `command`: train, resume or coordinator. `workers`: that it starts.
nlohmann::ordered_json start_event(std::string_view command, int64_t workers);

// `stopped_by`: a signal, 0: none. `reason`: of one that failed; may be empty.
nlohmann::ordered_json end_event(bool finished, int stopped_by, std::string_view reason);

}  // namespace muster::cli
