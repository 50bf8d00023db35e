# The files that fill the table of functions.
set(table_sources ext_checkpoint.cc ext_files.cc ext_phase.cc ext_probe.cc ext_report.cc ext_state.cc json_request.cc table_v1.cc)
