// Command rest is a REST service for ManifestWorks, without a Kubernetes API: it keeps works in
// PostgreSQL, delivers them over MQTT, and serves them with their statuses over HTTP. Several replicas
// may run on one database. See README.md.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/workwire/workwire/pkg/runtime/serve"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/source/store/postgres"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
)

// options are the flags.
type options struct {
	transport, sourceID, clientID, databaseFile string
	address, certFile, keyFile, tokenFile       string
}

func main() {
	o, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "rest:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = run(ctx, o, func(address net.Addr) { slog.Info("listening", "address", address.String()) })
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rest:", err)
		os.Exit(1)
	}
}

// parse returns the options in args, or what is wrong with them.
func parse(args []string, help io.Writer) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("rest", flag.ContinueOnError)
	flags.SetOutput(help)
	flags.StringVar(&o.transport, "transport-config", "", "path of the transport configuration file; required")
	flags.StringVar(&o.sourceID, "source-id", "", "id of this source, the one that the topics name; required")
	flags.StringVar(&o.clientID, "client-id", "", "id of this replica at the broker (default: the source id and the name of the host)")
	flags.StringVar(&o.databaseFile, "database-url-file", "", "path of a file with the PostgreSQL connection URL; required")
	flags.StringVar(&o.address, "listen-address", "127.0.0.1:8090",
		"host:port to serve on. Other than on loopback it needs --tls-cert-file, --tls-key-file and --token-file")
	flags.StringVar(&o.certFile, "tls-cert-file", "", "path of the certificate in PEM (default: plain HTTP)")
	flags.StringVar(&o.keyFile, "tls-key-file", "", "path of the key in PEM")
	flags.StringVar(&o.tokenFile, "token-file", "", "path of a file with the bearer token that callers must send (default: none)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	return o, o.validate()
}

func (o options) validate() error {
	var errs []error
	for name, value := range map[string]string{
		"transport-config": o.transport, "source-id": o.sourceID, "database-url-file": o.databaseFile,
	} {
		if value == "" {
			errs = append(errs, fmt.Errorf("--%s is required", name))
		}
	}
	if (o.certFile == "") != (o.keyFile == "") {
		errs = append(errs, errors.New("--tls-cert-file and --tls-key-file: set both or neither"))
	}
	host, _, err := net.SplitHostPort(o.address)
	if err != nil {
		errs = append(errs, fmt.Errorf("--listen-address must be host:port, got %q", o.address))
	} else if !serve.IsLoopback(host) && (o.certFile == "" || o.keyFile == "" || o.tokenFile == "") {
		errs = append(errs, fmt.Errorf("--listen-address %q is reachable from other machines: set --tls-cert-file, --tls-key-file and "+
			"--token-file, or listen on 127.0.0.1", o.address))
	}
	return errors.Join(errs...)
}

// run serves until ctx ends. It calls listening once.
func run(ctx context.Context, o options, listening func(net.Addr)) error {
	token, err := secret(o.tokenFile)
	if err != nil {
		return err
	}
	url, err := secret(o.databaseFile)
	if err != nil {
		return err
	}
	broker, err := config.Load(o.transport)
	if err != nil {
		return err
	}
	if o.clientID == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("name of the host: %w; set --client-id", err)
		}
		o.clientID = o.sourceID + "-" + host
	}
	connection, err := mqtt.New(mqtt.Config{Broker: broker, ClientID: o.clientID})
	if err != nil {
		return err
	}
	client, err := source.New(source.Config{
		SourceID: wire.SourceID(o.sourceID), Topics: broker.Topics, Transport: connection,
		Store: postgres.New(postgres.Config{URL: url}),
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.address)
	if err != nil {
		return err
	}
	if o.certFile != "" {
		pair, err := tls.LoadX509KeyPair(o.certFile, o.keyFile)
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	}
	listening(listener.Addr())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return client.Run(ctx) })
	group.Go(func() error { return serveUntil(ctx, listener, newHandler(client, token)) })
	return group.Wait()
}

// serveUntil serves until ctx ends, and returns when no request runs.
func serveUntil(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx }, // watches end with ctx
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return errors.Join(server.Shutdown(bounded), server.Close())
}

// secret returns what is in a file, without a line break at the end; nothing if there is no file.
func secret(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return "", fmt.Errorf("%s is empty", file)
	}
	return string(text), nil
}
