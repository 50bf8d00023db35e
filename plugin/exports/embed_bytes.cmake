# cmake -DINPUT=file -DOUTPUT=file.inc -P embed_bytes.cmake: a file's bytes as an array's initializer.
file(READ "${INPUT}" hex HEX)
string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE "${OUTPUT}" "${bytes}\n")
