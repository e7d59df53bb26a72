// Package serve is the HTTP listener of a command. It serves Prometheus metrics at /metrics,
// liveness at /healthz, readiness at /readyz and, if enabled, profiles at /debug/pprof.
//
//	registry := serve.NewRegistry()
//	server, err := serve.New(serve.Config{
//		Options:  options, // from flags, see Options.AddFlags
//		Registry: registry,
//		Ready:    []serve.Check{{Name: "broker", Func: client.Ready}},
//		Logger:   logger,
//	})
//	...
//	err = server.Run(ctx)
//
// An address other than loopback requires TLS and a bearer token; [Options.Validate] refuses
// anything else. If a token is set, every path requires it except /healthz and /readyz. Without the
// token they return the status code without details, so that a kubelet can probe them.
package serve
