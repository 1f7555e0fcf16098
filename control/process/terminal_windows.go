package process

import (
	"os"
	"syscall"
)

// openTerminal refuses: programs have no terminals here yet.
func openTerminal(int, int) (own, tty *os.File, err error) {
	return nil, nil, errorf(Unsupported, "there are no terminals on Windows: start the process without tty")
}

func setSize(*os.File, int, int) error {
	return errorf(Unsupported, "there are no terminals on Windows")
}

func signalForeground(*os.File, syscall.Signal) (known bool, err error) { return false, nil }
