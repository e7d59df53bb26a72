package command_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/pkg/runtime/command"
	"github.com/workwire/workwire/test/kit"
)

// TestMain runs a command that reads its input, and hangs then, when this binary is started by TestSignals.
func TestMain(m *testing.M) {
	if os.Getenv("COMMAND_TEST_RUN") == "1" {
		os.Exit(command.Main(&cobra.Command{Use: "reader", RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Println("reading")
			_, err := io.ReadAll(command.Input(cmd.Context(), os.Stdin))
			fmt.Println(err)
			select {}
		}}))
	}
	os.Exit(m.Run())
}

// TestSignals: the first signal ends a command's reading, and another one the process.
func TestSignals(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "COMMAND_TEST_RUN=1")
	stdin, err := cmd.StdinPipe()
	kit.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	kit.NoError(t, err)
	kit.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := make(chan string)
	ended := make(chan error, 1)
	go func() {
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			lines <- scanner.Text()
		}
		ended <- cmd.Wait()
	}()
	if line := kit.Receive(t, "a line", lines); line != "reading" {
		t.Fatal(line)
	}
	kit.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	if line := kit.Receive(t, "a line", lines); line != "terminated signal received" {
		t.Errorf("the read ends with %s", line)
	}
	kit.True(t, "the end of the process", func() bool {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		return len(ended) > 0
	})
	if err := <-ended; err.Error() != "signal: terminated" {
		t.Error(err)
	}
	_ = stdin.Close()
}

// TestInput reads all that is there, in pieces.
func TestInput(t *testing.T) {
	text := strings.Repeat("workwire", 20_000)
	if got, err := io.ReadAll(command.Input(t.Context(), strings.NewReader(text))); err != nil || string(got) != text {
		t.Errorf("%v: %d of %d bytes", err, len(got), len(text))
	}
}
