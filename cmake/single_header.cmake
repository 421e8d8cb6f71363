# Writes the single-file header allod.hpp: what include/allod.hpp includes, each file once, in the
# order of the layers, with the headers of the system in front.
#
#   cmake -DINCLUDE=FOLDER -DLICENCE=FILE -DVERSION=VERSION -DOUTPUT=FILE -P single_header.cmake
cmake_minimum_required(VERSION 3.25)

# allod_take(NAME): adds a header and what it includes to the property `body`, unless it is there.
# What comes before an include that is not at the top of a file belongs before what is included.
function(allod_take name)
  get_property(seen GLOBAL PROPERTY seen)
  if(name IN_LIST seen)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY seen ${name})
  if(NOT EXISTS ${INCLUDE}/${name})
    message(FATAL_ERROR "${INCLUDE}/${name} does not exist")
  endif()
  file(READ ${INCLUDE}/${name} rest)
  set(rest "\n${rest}")
  string(REPLACE "\n#pragma once" "" rest "${rest}")
  string(REGEX MATCHALL "\n#include <[^>\n]+>" headers "${rest}")
  foreach(header IN LISTS headers)
    string(REGEX REPLACE ".*<(.*)>" "\\1" header "${header}")
    set_property(GLOBAL APPEND PROPERTY system ${header})
  endforeach()
  string(REGEX REPLACE "\n#include <[^>\n]+>" "" rest "${rest}")

  set(own "// ---- ${name}")
  while(rest MATCHES "\n#include \"(allod/[^\"\n]+)\"")
    set(line "${CMAKE_MATCH_0}")
    set(next ${CMAKE_MATCH_1})
    string(FIND "${rest}" "${line}" place)
    string(SUBSTRING "${rest}" 0 ${place} before)
    string(LENGTH "${line}" length)
    math(EXPR place "${place} + ${length}")
    string(SUBSTRING "${rest}" ${place} -1 rest)
    string(APPEND own "${before}")
    string(REGEX REPLACE "\n//[^\n]*" "" code "\n${own}")
    string(STRIP "${code}" code)
    if(NOT code STREQUAL "")
      allod_add("${own}")
      set(own "")
    endif()
    allod_take(${next})
  endwhile()
  if(rest MATCHES "\n([ \t]*#include[^\n]*)")
    message(FATAL_ERROR "${INCLUDE}/${name}: ${CMAKE_MATCH_1} cannot be put into one file")
  endif()
  allod_add("${own}${rest}")
endfunction()

function(allod_add text)
  string(REGEX REPLACE "^\n" "" text "${text}")
  set_property(GLOBAL APPEND_STRING PROPERTY body "${text}\n")
endfunction()

allod_take(allod.hpp)
get_property(body GLOBAL PROPERTY body)
get_property(system GLOBAL PROPERTY system)
list(REMOVE_DUPLICATES system)
list(SORT system)
list(TRANSFORM system REPLACE "(.+)" "#include <\\1>")
list(JOIN system "\n" system)
file(READ ${LICENCE} licence)
string(STRIP "${licence}" licence)
string(REPLACE "\n" "\n// " licence "// ${licence}")
string(REPLACE "// \n" "//\n" licence "${licence}")
# A guard, so that the file can be compiled by itself as well.
set(text "// Allod ${VERSION}: heaps that a program composes from parts, in one file.
// Made by cmake/single_header.cmake. MIT licence:
//
${licence}
#ifndef ALLOD_SINGLE_HEADER
#define ALLOD_SINGLE_HEADER

${system}

${body}
#endif
")
string(REGEX REPLACE "\n\n\n+" "\n\n" text "${text}")
file(WRITE ${OUTPUT} "${text}")
