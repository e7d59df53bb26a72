package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/session"
	"github.com/workwire/workwire/pkg/runtime/serve"
	"github.com/workwire/workwire/pkg/runtime/statestore"
)

// databaseFile is the name of the database in [Config.DataDir].
const databaseFile = "broker.db"

// resources are the files and ports of a running broker.
type resources struct {
	store       *statestore.Store // nil without a data directory
	router      *session.Router
	revocations *revocations
	listeners   []*listener
	http        net.Listener // nil if not served
	served      bool         // serveMQTT closes the listeners
}

// openResources opens all files and ports, or none.
func openResources(cfg Config) (res *resources, err error) {
	res = &resources{}
	defer func() {
		if err != nil {
			err = errors.Join(err, res.close())
		}
	}()
	routerCfg := session.Config{Limits: cfg.sessionLimits(), ReceiveMaximum: int(cfg.ReceiveMaximum), Shares: acl.IsSource, Logger: cfg.Logger}
	err = res.openStore(cfg, routerCfg)
	if errors.Is(err, statestore.ErrDamaged) && res.store != nil { // the file is whole, its content is not
		if err := res.store.SetAside(err); err != nil {
			return res, err
		}
		err = res.openStore(cfg, routerCfg)
	}
	if err != nil {
		return res, err
	}
	if res.revocations, err = openRevocations(cfg.DataDir, cfg.Logger); err != nil {
		return res, err
	}
	for _, c := range cfg.Listeners {
		l, err := listen(c, res.revocations, cfg.Logger)
		if err != nil {
			return res, err
		}
		res.listeners = append(res.listeners, l)
	}
	if cfg.HTTPAddress != "" {
		if res.http, err = serve.Listen(context.Background(), cfg.HTTPAddress, cfg.HTTPCertFile, cfg.HTTPKeyFile); err != nil {
			return res, fmt.Errorf("listen for metrics and health (httpAddress, httpCertFile, httpKeyFile): %w", err)
		}
	}
	return res, nil
}

// openStore opens the database, if there is one, and the router on it.
func (res *resources) openStore(cfg Config, routerCfg session.Config) (err error) {
	if cfg.DataDir != "" {
		committed := func(batch uint64) { res.router.Committed(batch) }
		res.store, err = session.OpenStore(filepath.Join(cfg.DataDir, databaseFile), committed, cfg.Logger)
		if err != nil {
			return err
		}
		routerCfg.Store = res.store
	}
	res.router, err = session.New(routerCfg)
	return err
}

// close closes what openResources opened. It may be called more than once.
func (res *resources) close() error {
	var errs []error
	if !res.served {
		for _, l := range res.listeners {
			errs = append(errs, l.socket.Close())
		}
	}
	if res.http != nil {
		if err := res.http.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if res.store != nil {
		errs = append(errs, res.store.Close())
	}
	return errors.Join(errs...)
}
