<!DOCTYPE html><title>404</title>
