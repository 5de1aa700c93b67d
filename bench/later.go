package main

import "context"

func stored(ctx context.Context, b *bed, p plan, f *figures) error          { return nil }
func dispatchLatency(ctx context.Context, b *bed, p plan, f *figures) error { return nil }
func micro(ctx context.Context, b *bed, p plan, f *figures) error           { return nil }
