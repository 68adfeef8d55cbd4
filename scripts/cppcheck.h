/* Loops of jansson, spelled out for cppcheck, which does not read the headers of libraries. */
#define json_array_foreach(array, i, value) for (i = 0; (value = json_array_get(array, i)); i++)
#define json_object_foreach(object, key, value)                                                    \
        for (key = json_first_key(object); (value = json_object_get(object, key));                 \
             key = json_next_key(object, key))
