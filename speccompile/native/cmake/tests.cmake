# Programs of tests/ over the runtime's own objects. Those named ..._lines answer on stdout what tests in Python send them;
# the others are tests by themselves.
function(add_program name source)
  add_executable(${name} ${native}/tests/${source} ${runtime_objects})
  target_link_libraries(${name} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
endfunction()

# Programs over the C ABI, as any other, which are given a bundle.
function(add_user name source)
  add_executable(${name} ${native}/tests/${source})
  target_link_libraries(${name} PRIVATE speccompile Threads::Threads)
endfunction()

add_program(tokenizer_lines tokenizer.cpp)
add_program(bundle_lines bundle.cpp)
add_program(adaptive_length_lines adaptive_length.cpp)
add_program(slot_lines slots.cpp)
add_program(scheduler_lines scheduler.cpp)
add_program(template_lines templates.cpp)
add_program(fuzz fuzz.cpp)
target_sources(fuzz PRIVATE $<TARGET_OBJECTS:speccompile_http>)
add_user(test_calls calls.cpp)
add_user(test_memory_growth memory_growth.cpp)
add_user(test_sessions sessions.cpp)
add_user(test_schedulers schedulers.cpp)
add_user(test_proposers proposers.cpp)
add_user(test_text_proposers text_proposers.cpp)
add_program(test_device device.cpp)
add_test(NAME device COMMAND test_device)
