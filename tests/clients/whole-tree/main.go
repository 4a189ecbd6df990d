// Command whole-tree does with a box what a controller does that works by read, modify, write: it reads / by Subscribe ONCE in
// PROTO, keeps what is configuration together with the keys of all list entries, and sends that back, twice in each form: as a
// replace of the root, of its containers, of single entries, and as a union_replace.
//
// The address, certificate authority, user and password are in TARGET_ADDRESS, TARGET_CA, TARGET_USER and TARGET_PASSWORD.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
)

// How long all of it may take.
const patience = time.Minute

// Subtrees of which generated structures have no configuration.
var stateAlone = []string{
	"afts", "alarms", "cpus", "mount-points", "processes",
	"authz-policy-counters", "gnmi-pathz-policy-counters", "gnmi-pathz-policies", "source-records",
}

type object = map[string]any

func main() {
	log.SetFlags(0)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx,
		"username", os.Getenv("TARGET_USER"), "password", os.Getenv("TARGET_PASSWORD"))
	client, err := connect()
	if err != nil {
		log.Fatal(err)
	}
	tree, err := readTree(ctx, client)
	if err != nil {
		log.Fatal("reading: ", err)
	}
	for name, request := range forms(tree) {
		for range 2 {
			if _, err := client.Set(ctx, request); err != nil {
				log.Fatalf("%s: %v", name, err)
			}
		}
		fmt.Println("sent back:", name)
	}
}

func connect() (gnmi.GNMIClient, error) {
	pem, err := os.ReadFile(os.Getenv("TARGET_CA"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("TARGET_CA holds no certificate")
	}
	secure := credentials.NewTLS(&tls.Config{RootCAs: roots})
	connection, err := grpc.NewClient(os.Getenv("TARGET_ADDRESS"), grpc.WithTransportCredentials(secure))
	if err != nil {
		return nil, err
	}
	return gnmi.NewGNMIClient(connection), nil
}

// readTree returns the configuration of the box, with the keys of entries that are in state alone.
func readTree(ctx context.Context, client gnmi.GNMIClient) (object, error) {
	stream, err := client.Subscribe(ctx)
	if err != nil {
		return nil, err
	}
	list := &gnmi.SubscriptionList{
		Mode:         gnmi.SubscriptionList_ONCE,
		Encoding:     gnmi.Encoding_PROTO,
		Subscription: []*gnmi.Subscription{{Path: &gnmi.Path{}}},
	}
	if err := stream.Send(&gnmi.SubscribeRequest{Request: &gnmi.SubscribeRequest_Subscribe{Subscribe: list}}); err != nil {
		return nil, err
	}
	tree := object{}
	for {
		message, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return tree, nil
		case err != nil:
			return nil, err
		}
		notification := message.GetUpdate()
		for _, update := range notification.GetUpdate() {
			elems := slices.Concat(notification.GetPrefix().GetElem(), update.GetPath().GetElem())
			if err := keep(tree, elems, update.GetVal()); err != nil {
				return nil, err
			}
		}
	}
}

// keep puts a leaf of configuration into the tree; of one of state it keeps the entries that lead to it.
func keep(at object, elems []*gnmi.PathElem, value *gnmi.TypedValue) error {
	kept, isConfig := 0, false
	for number, elem := range elems {
		if slices.Contains(stateAlone, elem.GetName()) {
			return nil
		}
		if len(elem.GetKey()) > 0 {
			kept = number + 1
		}
		isConfig = isConfig || elem.GetName() == "config"
	}
	if isConfig {
		kept = len(elems) - 1
	}
	for _, elem := range elems[:kept] {
		var err error
		if at, err = descend(at, elem); err != nil {
			return err
		}
	}
	if isConfig {
		plain, err := plainOf(value)
		if err != nil {
			return fmt.Errorf("%v: %w", elems, err)
		}
		at[elems[len(elems)-1].GetName()] = plain
	}
	return nil
}

func descend(at object, elem *gnmi.PathElem) (object, error) {
	name := elem.GetName()
	if len(elem.GetKey()) == 0 {
		if _, there := at[name]; !there {
			at[name] = object{}
		}
		return at[name].(object), nil
	}
	keys := object{}
	for key, text := range elem.GetKey() {
		keys[key] = text
		if name == "subinterface" { // the only list with a number as its key
			number, err := strconv.ParseUint(text, 10, 32)
			if err != nil {
				return nil, err
			}
			keys[key] = number
		}
	}
	entries, _ := at[name].([]any)
	for _, entry := range entries {
		entry := entry.(object)
		if !slices.ContainsFunc(slices.Collect(maps.Keys(keys)), func(key string) bool { return entry[key] != keys[key] }) {
			return entry, nil
		}
	}
	entry := maps.Clone(keys)
	entry["config"] = keys
	at[name] = append(entries, any(entry))
	return entry, nil
}

func plainOf(value *gnmi.TypedValue) (any, error) {
	switch it := value.GetValue().(type) {
	case *gnmi.TypedValue_StringVal:
		return it.StringVal, nil
	case *gnmi.TypedValue_UintVal:
		return it.UintVal, nil
	case *gnmi.TypedValue_IntVal:
		return it.IntVal, nil
	case *gnmi.TypedValue_BoolVal:
		return it.BoolVal, nil
	case *gnmi.TypedValue_LeaflistVal:
		all := []any{}
		for _, element := range it.LeaflistVal.GetElement() {
			plain, err := plainOf(element)
			if err != nil {
				return nil, err
			}
			all = append(all, plain)
		}
		return all, nil
	default:
		return nil, fmt.Errorf("no configuration is a %T", it)
	}
}

// forms are the requests in which a controller sends the tree back.
func forms(tree object) map[string]*gnmi.SetRequest {
	whole := []*gnmi.Update{document(nil, tree)}
	var containers, items []*gnmi.Update
	for _, name := range []string{"interfaces", "network-instances"} {
		containers = append(containers, document([]*gnmi.PathElem{{Name: name}}, tree[name]))
	}
	interfaces, _ := tree["interfaces"].(object)
	entries, _ := interfaces["interface"].([]any)
	for _, entry := range entries {
		name := entry.(object)["name"].(string)
		path := []*gnmi.PathElem{{Name: "interfaces"}, {Name: "interface", Key: map[string]string{"name": name}}}
		items = append(items, document(path, entry))
	}
	return map[string]*gnmi.SetRequest{
		"the root":      {Replace: whole},
		"containers":    {Replace: containers},
		"items":         {Replace: items},
		"union_replace": {UnionReplace: whole},
	}
}

func document(path []*gnmi.PathElem, value any) *gnmi.Update {
	text, err := json.Marshal(value)
	if err != nil {
		log.Fatal(err) // maps, lists and scalars can be written down
	}
	return &gnmi.Update{
		Path: &gnmi.Path{Elem: path},
		Val:  &gnmi.TypedValue{Value: &gnmi.TypedValue_JsonVal{JsonVal: text}},
	}
}
