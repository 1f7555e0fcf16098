package process

// readNow reads nothing here: a read of a pipe would wait.
func readNow(uintptr, []byte) (int, error) { return 0, nil }
