// Command workload is what the pods of tests on a real node run (deploy/compose/node.yaml): an HTTP
// server whose readiness a file decides, so that a change of a ConfigMap makes pods fail and recover:
//
//	workload serve --mode-file=/config/mode
//	workload pause
//	workload registry --listen=127.0.0.1:5000
//
// pause is the sandbox of a pod. registry serves an image of the program (registry.go), in which it is also the commands
// true and sleep.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	args := os.Args
	if name := filepath.Base(args[0]); len(args) > 1 && name != "true" && name != "sleep" {
		args = args[1:]
	}
	var err error
	switch command := filepath.Base(args[0]); command {
	case "true":
	case "pause", "sleep":
		pause()
	case "serve":
		err = serve(args[1:])
	case "registry":
		err = registry(args[1:])
	default:
		err = fmt.Errorf("command %q: want pause, serve or registry", command)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "workload:", err)
		os.Exit(1)
	}
}

// pause waits until the pod ends.
func pause() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	<-end
}

// serve answers readiness probes at /ready until it is told to end or to crash.
func serve(args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	file := flags.String("mode-file", "", "file with what to do: ready, unready, or crash; read every 200 ms; required")
	address := flags.String("listen", ":8080", "address of the server")
	if err := flags.Parse(args); err != nil {
		return err
	}
	server := &http.Server{Addr: *address, ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if mode(*file) != "ready" {
			http.Error(w, "not ready, as the ConfigMap says", http.StatusServiceUnavailable)
		}
	})}
	failed := make(chan error, 2)
	go func() { failed <- server.ListenAndServe() }()
	go func() {
		for mode(*file) != "crash" {
			time.Sleep(200 * time.Millisecond)
		}
		failed <- errors.New("crashing, as the ConfigMap says")
	}()
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	select {
	case err := <-failed:
		return err
	case <-end:
		return nil
	}
}

// mode returns what a file says, empty if it cannot be read.
func mode(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
