package cmdline

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Save has a file written, which is named in notes, or out for "" and "-". What is written stands
// beside it first, so that a part never stands where a whole is expected.
func Save(file, what string, out, notes io.Writer, write func(io.Writer) error) error {
	if file == "" || file == "-" {
		return write(out)
	}
	part, err := os.CreateTemp(filepath.Dir(file), ".sandbox-agent-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", what, err)
	}
	err = write(part)
	if err = errors.Join(err, part.Close()); err == nil {
		err = os.Rename(part.Name(), file)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s to %s: %w", what, file, err), os.Remove(part.Name()))
	}
	fmt.Fprintf(notes, "wrote %s\n", file)
	return nil
}
